"""The main job in a small size: pretrain, finetune, evaluate each variant."""
