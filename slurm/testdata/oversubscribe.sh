#!/bin/sh
#SBATCH -s
sleep 1
