#!/bin/sh
#SBATCH -n 2 hello
sleep 1
