#!/bin/sh
#SBATCH --gres=gpu:a100:1
sleep 1
