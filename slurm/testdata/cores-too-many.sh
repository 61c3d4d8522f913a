#!/bin/sh
#SBATCH -c 65
sleep 1
