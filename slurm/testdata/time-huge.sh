#!/bin/sh
#SBATCH --time=99999999999
sleep 1
