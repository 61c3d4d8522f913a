#!/bin/sh
#SBATCH --array=0-7
sleep 1
