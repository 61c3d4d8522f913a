#!/bin/sh
#SBATCH --begin=now+90minutes
sleep 1
