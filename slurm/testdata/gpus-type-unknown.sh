#!/bin/sh
#SBATCH --gpus=a100:1
sleep 1
