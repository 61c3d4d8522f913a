#!/bin/sh
#SBATCH -p gpu,debug
sleep 1
