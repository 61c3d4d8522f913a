#!/bin/sh
#SBATCH --begin=now+2days
sleep 1
