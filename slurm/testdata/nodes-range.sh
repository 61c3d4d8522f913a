#!/bin/sh
#SBATCH -N 1-4
sleep 1
