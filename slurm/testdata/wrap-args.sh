#!/bin/sh
# args: --wrap=true
sleep 1
