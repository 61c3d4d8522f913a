#!/bin/sh
#SBATCH -i /dev/zero
sleep 1
