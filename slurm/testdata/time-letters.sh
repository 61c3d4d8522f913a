#!/bin/sh
#SBATCH --time=1h
sleep 1
