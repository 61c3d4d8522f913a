#!/bin/sh
#SBATCH -t 20 --time-min=10
sleep 1
