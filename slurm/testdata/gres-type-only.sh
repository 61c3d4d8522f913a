#!/bin/sh
#SBATCH --gres=gpu:h100
sleep 1
