#!/bin/sh
#SBATCH --array=0-15:4
sleep 1
