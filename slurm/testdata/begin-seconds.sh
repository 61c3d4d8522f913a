#!/bin/sh
#SBATCH --begin=now+3600
sleep 1
