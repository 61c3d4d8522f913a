#!/bin/sh
#SBATCH --dependency=3
sleep 1
