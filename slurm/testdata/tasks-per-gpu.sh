#!/bin/sh
#SBATCH -G 2 --ntasks-per-gpu=3
sleep 1
