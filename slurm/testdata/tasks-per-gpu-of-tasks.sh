#!/bin/sh
#SBATCH -n 6 --ntasks-per-gpu=3
sleep 1
