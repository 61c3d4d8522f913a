#!/bin/sh
#SBATCH --gpus=4 --gpus-per-task=2
sleep 1
