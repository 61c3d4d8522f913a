#!/bin/sh
#SBATCH --gpus=two
sleep 1
