#!/bin/sh
#SBATCH --dependency=whenever:3
sleep 1
