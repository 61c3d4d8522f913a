#!/bin/sh
#SBATCH --gpus=0
sleep 1
