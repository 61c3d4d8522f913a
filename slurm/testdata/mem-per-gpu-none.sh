#!/bin/sh
#SBATCH --mem-per-gpu=2G
sleep 1
