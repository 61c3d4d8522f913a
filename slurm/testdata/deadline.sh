#!/bin/sh
#SBATCH -t 10 --deadline=2031-02-03T04:05
sleep 1
