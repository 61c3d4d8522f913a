#!/bin/sh
#SBATCH --array=5
sleep 1
