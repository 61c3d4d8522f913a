#!/bin/sh
#SBATCH -x box
sleep 1
