#!/bin/sh
#SBATCH -t 10 --deadline=2020-01-01
sleep 1
