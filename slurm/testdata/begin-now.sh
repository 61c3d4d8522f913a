#!/bin/sh
#SBATCH --begin=now
sleep 1
