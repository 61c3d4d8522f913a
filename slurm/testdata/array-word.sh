#!/bin/sh
#SBATCH --array=all
sleep 1
