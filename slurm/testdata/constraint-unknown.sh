#!/bin/sh
#SBATCH -C volta
sleep 1
