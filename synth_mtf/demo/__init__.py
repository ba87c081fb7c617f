"""The whole pipeline at a small size: pretrain, finetune, evaluate."""
