#!/bin/sh
#SBATCH --mincpus=6
sleep 1
