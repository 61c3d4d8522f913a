#!/bin/sh
#SBATCH --begin=tomorrow
sleep 1
