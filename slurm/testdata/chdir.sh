#!/bin/sh
#SBATCH -D /tmp
sleep 1
