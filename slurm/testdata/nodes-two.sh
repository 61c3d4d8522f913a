#!/bin/sh
#SBATCH -N 2
sleep 1
