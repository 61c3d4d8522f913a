#!/bin/sh
#SBATCH -N 0
sleep 1
