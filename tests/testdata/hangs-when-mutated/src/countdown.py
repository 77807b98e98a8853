def steps(n):
    done = 0
    while n > 0:
        n -= 1
        done += 1
    return done


def wait(seconds, sleep):
    sleep(seconds)
