#!/bin/sh
#SBATCH --array=1,1,2
sleep 1
