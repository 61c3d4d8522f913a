#!/bin/sh
#SBATCH --gres=gpu
sleep 1
