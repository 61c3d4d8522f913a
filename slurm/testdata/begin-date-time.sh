#!/bin/sh
#SBATCH --begin=2031-02-03T04:05
sleep 1
