#!/bin/sh
#SBATCH -N 1
sleep 1
