#!/bin/sh
#SBATCH -n 2 -c 2 --mem-per-cpu=500
sleep 1
