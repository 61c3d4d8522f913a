#!/bin/sh
#SBATCH -n two
sleep 1
