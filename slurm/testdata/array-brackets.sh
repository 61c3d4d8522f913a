#!/bin/sh
#SBATCH --array=[1-3]
sleep 1
