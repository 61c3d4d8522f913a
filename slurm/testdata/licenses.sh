#!/bin/sh
#SBATCH -L matlab:1
sleep 1
