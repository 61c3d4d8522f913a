#!/bin/sh
#SBATCH --begin=now+1hour
sleep 1
