#!/bin/sh
#SBATCH --begin=2031-02-03T04:05:06
sleep 1
