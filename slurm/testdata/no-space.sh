#!/bin/sh
#SBATCH--time=6
sleep 1
