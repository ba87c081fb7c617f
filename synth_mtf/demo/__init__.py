"""The main job, small: pretrain, finetune and evaluate each variant."""
